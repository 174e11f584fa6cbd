"""The guided tour behind ``make run``: everything real, on a private bus."""
