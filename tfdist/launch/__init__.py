"""Starting the processes of a cluster. Nothing in here imports TensorFlow."""
