//! Tests of the area `gate`.
