//! One message of a stream, as far as it is read: of the newer format and of the older one, which share no field but
//! the type.
//!
//! What a delta holds is told by its fields, not by its type: types are added all the time, and what is generated is
//! `text`, `thinking` or `partial_json` in all of them. A signature, a citation or a compacted context is not.

use serde::Deserialize;

use super::usage::RawUsage;
use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Count, Object, Text, Written};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    #[serde(rename = "type")]
    pub kind: Text<'a>,
    pub message: Object<Box<Head<'a>>>,
    pub index: Count,
    pub content_block: Object<Box<Block<'a>>>,
    pub delta: Object<Delta<'a>>,
    pub usage: Object<Box<RawUsage<'a>>>,
    pub error: Failure<'a>,
    /// The older format.
    pub completion: Text<'a>,
    pub stop_reason: Text<'a>,
    pub id: Text<'a>,
    pub model: Text<'a>,
}

/// The message before it has any content.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Head<'a> {
    pub id: Text<'a>,
    pub model: Text<'a>,
    pub usage: Object<RawUsage<'a>>,
}

/// A block at its start: mostly empty, but it need not be.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Block<'a> {
    pub id: Text<'a>,
    /// Of the tool that is called.
    pub name: Text<'a>,
    pub text: Text<'a>,
    pub thinking: Text<'a>,
    pub input: Written,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Delta<'a> {
    pub text: Text<'a>,
    pub thinking: Text<'a>,
    pub partial_json: Text<'a>,
    pub stop_reason: Text<'a>,
}
