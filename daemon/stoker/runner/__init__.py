"""The runner: the only process that loads llama.cpp and parses model files.

Everything that can kill a process lives behind this door. It imports the frames, the
messages, errors and getters of the agent, and nothing else of it.
"""
