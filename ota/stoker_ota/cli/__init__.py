"""The command line of the build host, stoker-ota."""
