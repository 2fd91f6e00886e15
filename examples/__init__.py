"""Tasks for `tfdist.train`, and scripts that show tfdist in a program of one's own."""
