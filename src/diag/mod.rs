//! What the proxy says about itself: one struct per happening, each with one level, one message, one set of fields.
