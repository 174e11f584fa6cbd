"""stoker-gateway: the REST door, a process of its own and a plain D-Bus client of stokerd.

It imports ``stoker_client`` and nothing else of this project. What it may say beyond any
other client is whose request it carries: ``on_behalf_of_uid``, for peers of its unix socket.
"""
