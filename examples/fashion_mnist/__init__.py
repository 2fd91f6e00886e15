"""Fashion-MNIST: 70,000 grey images of clothes in ten classes (Xiao et al. 2017, arXiv:1708.07747), through TFDS."""
