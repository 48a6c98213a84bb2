import unittest

from shop import money
from shop.cart import Cart


class Shop(unittest.TestCase):
    def setUp(self):
        self.cart = Cart()
        self.cart.add("tea", "4.99", 3)
        self.cart.add("cup", "5.02")

    def test_parse_keeps_every_cent(self):
        self.assertEqual(money.parse("19.99"), 1999)
        self.assertEqual(money.parse("0.07"), 7)
        self.assertEqual(money.parse("5"), 500)

    def test_total_counts_the_quantity(self):
        self.assertEqual(self.cart.total(), 1999)

    def test_discount_is_whole_cents(self):
        self.assertEqual(repr(self.cart.discounted(15)), "1699")

    def test_receipt_shows_the_quantity(self):
        self.assertEqual(self.cart.receipt(), "3 x tea 14.97\n1 x cup 5.02\ntotal 19.99")


if __name__ == "__main__":
    unittest.main()
