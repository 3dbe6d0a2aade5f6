//! Reads the parts of a document that describe an error. Only the kind of the error is read, because its message is
//! content.

use super::value::Value;

/// Maximum length of an error's kind. A longer text is a sentence, not a kind.
const MAX_KIND_LEN: usize = 64;

/// A place in a body that can describe an error, most specific first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ErrorField {
    /// The error itself: an object or a string.
    Error,
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
    /// The type of the whole body, which is `error` in some old formats.
    ObjectType,
}

/// Paths of errors in all formats. They apply to every API, because gateways and clouds send their own error objects.
pub const ERROR_ROWS: &[(&str, ErrorField)] = &[
    ("error", ErrorField::Error),
    ("error|errors.*", ErrorField::Error),
    ("error.type", ErrorField::Type),
    ("error|errors.*.type", ErrorField::Type),
    ("error.status", ErrorField::Status),
    ("error.code", ErrorField::Code),
    ("error|errors.*.code", ErrorField::Code),
    ("base_resp.status_code", ErrorField::ResponseStatus),
    ("__type", ErrorField::AwsName),
    ("Output.__type", ErrorField::AwsName),
    ("ErrorCode|error_type", ErrorField::ServerType),
    ("code|error_code", ErrorField::TopCode),
    ("object", ErrorField::ObjectType),
    // An error that ends a choice, or a stream of Groq.
    ("choices.*.error", ErrorField::Error),
    ("choices.*.error.type", ErrorField::Type),
    ("choices.*.error.code", ErrorField::Code),
    ("x_groq.error", ErrorField::Error),
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
        if field == ErrorField::Error {
            self.is_error |= matches!(value, Value::Object | Value::Text(_));
            return;
        }
        let Some(word) = value.word() else {
            return;
        };
        let kind = match field {
            ErrorField::ObjectType | ErrorField::TopType if word == "error" => {
                self.is_error = true;
                return;
            }
            ErrorField::ObjectType => return,
            ErrorField::ResponseStatus if word == "0" => return,
            // The value is an HTTP status, which is less specific than a code.
            ErrorField::Status if word.parse::<u64>().is_ok() => return,
            ErrorField::AwsName => unqualified(word),
            _ => word,
        };
        self.is_error |= matches!(
            field,
            ErrorField::ResponseStatus | ErrorField::AwsName | ErrorField::ServerType
        );
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
