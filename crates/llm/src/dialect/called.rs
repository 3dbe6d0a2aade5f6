//! Tells which tool is called.

use super::Event;

/// Says what is known of the call of this number; nothing, where that is nothing.
pub fn called(
    (choice, number): (u32, u32),
    id: Option<&str>,
    name: Option<&str>,
    out: &mut impl FnMut(Event<'_>),
) {
    if id.or(name).is_some() {
        out(Event::Call { choice, number, id, name });
    }
}
