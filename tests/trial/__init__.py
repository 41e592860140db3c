"""An installation as a sceptical administrator would try it: docs/operations/trial.md."""
