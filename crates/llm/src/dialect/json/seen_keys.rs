//! Finds keys that an object repeats.

/// The keys of all open objects that a format reads. There are at most as many keys per object as the format has rows
/// and alternatives, and the number of open objects is bounded.
#[derive(Debug, Default)]
pub struct SeenKeys(Vec<(usize, u64)>);

impl SeenKeys {
    /// Adds a key of the object at this level. Returns whether the object repeats the key.
    pub fn insert(&mut self, level: usize, key: &str) -> bool {
        let entry = (level, hash(key));
        let is_repeated = self.0.contains(&entry);
        if !is_repeated {
            self.0.push(entry);
        }
        is_repeated
    }

    /// Removes a key whose value is null, because null is no value.
    pub fn remove(&mut self, level: usize, key: &str) {
        let entry = (level, hash(key));
        self.0.retain(|known| *known != entry);
    }

    /// Removes the keys of the object at this level, which has ended.
    pub fn end(&mut self, level: usize) {
        while self.0.pop_if(|(known, _)| *known >= level).is_some() {}
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the FNV-1a hash of a key.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
