"""Notices that this machine goes away: signals, files, and what cloud machines say of themselves."""
