//! Defines enums whose variants have a name for labels, configuration and documentation.

macro_rules! named {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name in labels, configuration and documentation.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),*
                }
            }
        }
    };
}
