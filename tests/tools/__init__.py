"""Programs that tests run and the product does not need, built from `go.mod`."""
