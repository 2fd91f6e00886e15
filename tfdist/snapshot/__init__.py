"""What a checkpoint holds of a training: values taken from a model and its surroundings, and put back."""
