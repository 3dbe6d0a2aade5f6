use serde_json::json;

use super::*;

fn patch(operations: Value) -> Patch {
    serde_json::from_value(operations).unwrap()
}

fn one(text: &str) -> Document<'_> {
    let mut documents = documents(text).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

/// What becomes of a text of one document, all of which is kept otherwise.
fn edited(text: &str, operations: Value) -> String {
    let edited = one(text).edited(&patch(operations)).unwrap();
    assert_eq!(edited.lost, [], "{text}");
    edited.text
}

fn add(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

fn replace(path: &str, value: Value) -> Value {
    json!([{"op": "replace", "path": path, "value": value}])
}

fn remove(path: &str) -> Value {
    json!([{"op": "remove", "path": path}])
}

const POD: &str = "\
# A pod.
apiVersion: v1
kind: Pod
metadata:
  name: app   # its name
spec:
  # What runs:
  containers:
  - name: app
    image: \"app:1\"
    ports:
    - {containerPort: 8000, name: http}
    # not yet:
    # env: []

  volumes: []
";

#[test]
fn entries_and_items_are_added_where_they_belong() {
    let text = edited(
        POD,
        json!([
            {"op": "add", "path": "/metadata/annotations", "value": {"tokengauge.dev/injected": "{\"a\":1}"}},
            {"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "A", "value": "yes"}]},
            {"op": "add", "path": "/spec/initContainers", "value": [{"name": "tokengauge", "args": ["run"]}]},
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "b", "image": "c"}},
            {"op": "replace", "path": "/spec/containers/0/ports/0/containerPort", "value": 4000},
            {"op": "add", "path": "/spec/volumes/-", "value": {"name": "v", "emptyDir": {}}},
        ]),
    );
    let expected = "\
# A pod.
apiVersion: v1
kind: Pod
metadata:
  name: app   # its name
  annotations:
    tokengauge.dev/injected: \"{\\\"a\\\":1}\"
spec:
  # What runs:
  containers:
  - name: app
    image: \"app:1\"
    ports:
    - {containerPort: 4000, name: http}
    # not yet:
    # env: []
    env:
    - name: A
      value: \"yes\"
  - name: b
    image: c

  volumes:
  - name: v
    emptyDir: {}
  initContainers:
  - name: tokengauge
    args:
    - run
";
    assert_eq!(text, expected);
}

#[test]
fn what_was_added_is_removed_without_a_trace() {
    let added = edited(POD, add("/spec/containers/-", json!({"name": "b"})));
    assert_eq!(edited(&added, remove("/spec/containers/1")), POD);
}
