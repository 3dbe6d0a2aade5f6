//! Content-encodings: coded bytes → plain bytes, incremental and capped. The only user of the inflaters.
