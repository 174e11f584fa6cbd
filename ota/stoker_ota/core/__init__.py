"""Pure decisions and codecs: bytes and values in, values out; no files, clock or random."""
