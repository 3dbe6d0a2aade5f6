//! Leaving over HTTP/2, from either side.
