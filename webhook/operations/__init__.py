"""Operations of an administrator: opt namespaces in, opt them out, look after all of it.

Belongs here: reading a cluster for a person or a script, judging it, and the few writes that opt a
namespace in or out, or resize a Job. Everything works on a `ClusterApi`, live or in memory, and
tells its progress to a callback. Does not: printing, exit codes, and what runs all the time
(`controllers`).
"""
