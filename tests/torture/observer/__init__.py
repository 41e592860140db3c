"""Observer of etcd's history, and the judges that replay it, without code of the product."""
