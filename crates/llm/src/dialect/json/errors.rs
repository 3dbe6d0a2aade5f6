//! Reads the parts of a document that describe an error. Only the kind of the error is read, because its message is
//! content.

use super::value::Value;
use crate::dialect::errors::states_error;

/// Maximum length of an error's kind. A longer text is a sentence, not a kind.
const MAX_KIND_LEN: usize = 64;

/// A place in a body that can describe an error, most specific first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ErrorField {
    /// The error itself, if it is not an object.
    Error,
    /// A text that describes the error. The text is content, so it is not stored.
    Message,
    /// SageMaker: the status of the container, if the container lacked time or capacity.
    OriginalStatus,
    Type,
    /// Google's name of the error, next to a numeric code.
    Status,
    Code,
    /// MiniMax: the status of the response, `0` for success.
    ResponseStatus,
    /// AWS: the name of the exception.
    AwsName,
    /// The type of the error, as SageMaker and TGI report it.
    ServerType,
    TopType,
    TopCode,
    /// A flag of the whole body, `false` for an error.
    Success,
    /// The type of the whole body, which is `error` in some old formats.
    ObjectType,
}

/// Paths of errors in all formats. They apply to every API, because gateways and clouds send their own error objects.
pub const ERROR_ROWS: &[(&str, ErrorField)] = &[
    ("error", ErrorField::Error),
    ("error|errors.*", ErrorField::Error),
    ("error.message|msg|detail|details|description", ErrorField::Message),
    ("error|errors.*.message|msg|detail|details|description", ErrorField::Message),
    ("error.type", ErrorField::Type),
    ("error|errors.*.type", ErrorField::Type),
    ("error.status", ErrorField::Status),
    ("error.code", ErrorField::Code),
    ("error|errors.*.code", ErrorField::Code),
    // An error of another server that a gateway wraps.
    ("error.error", ErrorField::Error),
    ("error.error.message|msg|detail|details|description", ErrorField::Message),
    ("error.error.type", ErrorField::Type),
    ("error.error.code", ErrorField::Code),
    ("base_resp.status_code", ErrorField::ResponseStatus),
    ("__type", ErrorField::AwsName),
    ("Output.__type", ErrorField::AwsName),
    ("ErrorCode|error_type|error_code", ErrorField::ServerType),
    ("OriginalStatusCode", ErrorField::OriginalStatus),
    ("code", ErrorField::TopCode),
    ("success", ErrorField::Success),
    ("object", ErrorField::ObjectType),
    // An error that ends a choice, or a stream of Groq.
    ("choices.*.error", ErrorField::Error),
    ("choices.*.error.message", ErrorField::Message),
    ("choices.*.error.type", ErrorField::Type),
    ("choices.*.error.code", ErrorField::Code),
    ("x_groq.error", ErrorField::Error),
    ("x_groq.error.message", ErrorField::Message),
    ("x_groq.error.type", ErrorField::Type),
    ("x_groq.error.code", ErrorField::Code),
    // The last row, because messages of a stream are read without it.
    ("type", ErrorField::TopType),
];

/// Collects the parts of a document that describe an error.
#[derive(Debug, Default)]
pub struct ErrorScanner {
    is_error: bool,
    /// The most specific kind that was read so far.
    kind: Option<(ErrorField, String)>,
}

impl ErrorScanner {
    pub(super) fn read(&mut self, field: ErrorField, value: Value<'_>) {
        if let Value::Bool(flag) = value {
            self.is_error |= match field {
                ErrorField::Error => flag,
                ErrorField::Success => !flag,
                _ => false,
            };
        }
        let Some(word) = value.word().filter(|word| states_error(word)) else {
            return;
        };
        let kind = match field {
            ErrorField::Error | ErrorField::Message => {
                self.is_error = true;
                return;
            }
            ErrorField::ObjectType | ErrorField::TopType if word == "error" => {
                self.is_error = true;
                return;
            }
            ErrorField::ObjectType | ErrorField::Success => return,
            ErrorField::OriginalStatus if !matches!(word, "408" | "424" | "429") => return,
            // The value is an HTTP status, which is less specific than a code.
            ErrorField::Status if word.parse::<u64>().is_ok() => return,
            ErrorField::AwsName => unqualified(word),
            _ => word,
        };
        self.is_error |= match field {
            ErrorField::Type
            | ErrorField::Status
            | ErrorField::Code
            | ErrorField::ResponseStatus
            | ErrorField::AwsName
            | ErrorField::ServerType => true,
            // A response whose status is in its body.
            ErrorField::TopCode => is_error_status(word),
            _ => false,
        };
        let is_better = self.kind.as_ref().is_none_or(|(best, _)| field < *best);
        if is_better && identifier(kind).is_some() {
            self.kind = Some((field, kind.to_owned()));
        }
    }

    /// Returns whether the document describes an error, regardless of the HTTP status.
    pub const fn is_error(&self) -> bool {
        self.is_error
    }

    pub fn kind(&self) -> Option<&str> {
        self.kind.as_ref().map(|(_, kind)| kind.as_str())
    }
}

fn is_error_status(code: &str) -> bool {
    matches!(code.parse(), Ok(400..=599_u16))
}

/// Returns the kind of an error, or `None` if the text is a message and not an identifier.
pub fn identifier(kind: &str) -> Option<&str> {
    let is_word = kind.bytes().all(|byte| byte.is_ascii_graphic());
    (is_word && !kind.is_empty() && kind.len() <= MAX_KIND_LEN).then_some(kind)
}

/// Returns the name of an AWS exception without its namespace. Examples: `com.amazon.coral.service#ThrottlingException`
/// and `ThrottlingException:http://…`.
fn unqualified(name: &str) -> &str {
    let name = name.rsplit_once('#').map_or(name, |(_, name)| name);
    name.split_once(':').map_or(name, |(name, _)| name)
}
