"""Amounts of money, kept in cents."""


def parse(text):
    """Read an amount such as "12.50" and return cents."""
    return int(float(text) * 100)


def show(cents):
    """Write cents as an amount such as "12.50"."""
    return "%.2f" % (cents / 100)
