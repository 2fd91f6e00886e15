"""The traced train, evaluate and predict steps."""
