"""Programs that tests run and the product does not need, each from its own `go.mod`."""
