"""Certificates: issue them, check them, serve the newest usable files.

Belongs here: what a certificate for an admission webhook has to look like, reading and writing
its files, reloading them while the server runs. Does not: listening, and what asks for what.
"""
