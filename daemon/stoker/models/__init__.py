"""stoker-model: look at, quantise, prune and judge model files. A program of its own.

Only its child process (``models.child``) loads llama.cpp: a hostile file ends that, not us.
"""
