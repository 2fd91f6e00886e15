"""The only room that touches private names of Keras and TensorFlow.

Each module says which names it uses and why no public one serves; `tests/test_compat*.py` holds a contract
test for each, which says what broke when a release changes it.
"""
