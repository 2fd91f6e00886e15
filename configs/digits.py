"""The 1,797 optical digits of scikit-learn (8x8 pixels), a small convolutional network, SGD with momentum.

python -m tfdist.launch --workers=2 --workdir=runs/digits -- \\
    python -m tfdist.train --config=configs/digits.py --workdir=runs/digits --strategy=multiworker

Takes 12 seconds on two cores, of which the training is 5. Ends with a held-out accuracy of about 0.972, 350 of 360; one
more or less with other numbers of workers or threads, where sums are rounded in another order. The base rate fits
batches of 32; four times the batch gets four times the rate, after a warm-up.
"""

from ml_collections import ConfigDict


def get_config():
    config = ConfigDict()
    config.task = ConfigDict({"name": "examples.digits", "width": 32})
    config.batch_size = 128
    config.epochs = 20
    config.optimizer = ConfigDict({"name": "sgd", "momentum": 0.9, "nesterov": True})
    config.learning_rate = ConfigDict({"base": 0.05, "base_batch_size": 32, "warmup": "3 epochs", "schedule": "cosine"})
    return config
