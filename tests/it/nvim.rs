//! Tests of the area `nvim`.
