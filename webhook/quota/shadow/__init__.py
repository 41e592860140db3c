"""The record of shadow mode: outcomes with and without deferral, and its stored form."""
