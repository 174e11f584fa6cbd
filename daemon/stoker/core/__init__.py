"""Pure decisions and codecs: no I/O, no clock, no random, no logging."""
