//! Fields of the JSON pages of the admin port.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Returns the fields of the JSON pages of the admin port, such as `/slo:target`, from the examples in the admin API.
pub fn documented() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/admin-api.md");
    let page = fs::read_to_string(file).unwrap();
    let mut found = BTreeSet::new();
    for section in page.split("\n## /").skip(1) {
        let name = section.split_whitespace().next().unwrap();
        for block in section.split("```json\n").skip(1) {
            let example = block.split("```").next().unwrap();
            let example: Value =
                serde_json::from_str(example).unwrap_or_else(|error| panic!("/{name}: {error}"));
            found.extend(fields(&example).into_iter().map(|field| format!("/{name}:{field}")));
        }
    }
    found
}

/// Returns the paths of all fields of a JSON value. `[]` is any entry of a list; a list at the top has no path.
pub fn fields(value: &Value) -> BTreeSet<String> {
    fn collect(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(entries) => {
                for (key, entry) in entries {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let is_list = entry.is_array();
                    found.insert(if is_list { format!("{path}[]") } else { path.clone() });
                    collect(entry, &path, found);
                }
            }
            Value::Array(entries) => {
                let path = if path.is_empty() { String::new() } else { format!("{path}[]") };
                entries.iter().for_each(|entry| collect(entry, &path, found));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(value, "", &mut found);
    found
}
