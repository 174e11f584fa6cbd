"""Configuration as frozen values; ``parse`` turns TOML tables into them."""
