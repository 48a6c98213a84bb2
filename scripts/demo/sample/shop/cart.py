"""A shopping cart."""

from shop import money


class Cart:
    """What somebody wants to buy."""

    def __init__(self):
        self.lines = []

    def add(self, name, price, quantity=1):
        """Put something into the cart."""
        self.lines.append((name, money.parse(price), quantity))

    def total(self):
        """Sum of the cart, in cents."""
        return sum(cents for _, cents, _ in self.lines)

    def discounted(self, percent):
        """Total after a discount, in whole cents."""
        return self.total() - self.total() * percent / 100

    def receipt(self):
        """One line an item, and the total."""
        rows = []
        for name, cents, _ in self.lines:
            rows.append("%s %s" % (name, money.show(cents)))
        rows.append("total %s" % money.show(self.total()))
        return "\n".join(rows)
