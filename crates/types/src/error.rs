//! Formats errors with their causes.
//!
//! The message of an error describes its own level: what failed, and where. The cause is its `source`. A message that
//! contains its cause, because it also says what to do, has no source. A program therefore prints each message once.

use std::error::Error;
use std::fmt;

/// Formats an error and its causes in one line, from the outside in, such as `cannot read a.pem: Permission denied`.
///
/// Some libraries repeat the message of a cause. Equal messages in sequence are printed once.
#[derive(Clone, Copy, Debug)]
pub struct WithCauses<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut former = self.0.to_string();
        f.write_str(&former)?;
        for cause in std::iter::successors(self.0.source(), |&cause| cause.source()) {
            let message = cause.to_string();
            if message != former {
                write!(f, ": {message}")?;
            }
            former = message;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Self>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn prints_each_message_once_from_the_outside_in() {
        let refused = Layer("connection refused", None);
        let repeated = Layer("connection refused", Some(Box::new(refused)));
        let failed = Layer("cannot connect", Some(Box::new(repeated)));
        assert_eq!(WithCauses(&failed).to_string(), "cannot connect: connection refused");
        assert_eq!(WithCauses(&Layer("alone", None)).to_string(), "alone");
    }
}
