//! The places of a JSON body that describe an error.
//!
//! Gateways and clouds put their own error objects in place of those of the API, so every format reads all places.

/// A place of a body that may describe an error, from the most to the least specific name of its kind.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ErrorField {
    /// The error itself: an object or a message.
    Error,
    Type,
    /// Google: a name beside a numeric code.
    Status,
    Code,
    /// MiniMax: status of the response, `0` for success.
    ResponseStatus,
    /// AWS.
    AwsName,
    /// SageMaker and TGI.
    ServerType,
    TopType,
    TopCode,
    /// Type of the whole body, `error` in some old formats.
    ObjectType,
}

/// The places of all formats.
pub const ERROR_ROWS: &[(&str, ErrorField)] = &[
    ("error", ErrorField::Error),
    ("errors.*", ErrorField::Error),
    ("error.type", ErrorField::Type),
    ("errors.*.type", ErrorField::Type),
    ("error.status", ErrorField::Status),
    ("error.code", ErrorField::Code),
    ("errors.*.code", ErrorField::Code),
    ("base_resp.status_code", ErrorField::ResponseStatus),
    ("__type", ErrorField::AwsName),
    ("Output.__type", ErrorField::AwsName),
    ("ErrorCode|error_type", ErrorField::ServerType),
    ("type", ErrorField::TopType),
    ("code|error_code", ErrorField::TopCode),
    ("object", ErrorField::ObjectType),
    // An error that ends a choice, or a stream of Groq.
    ("choices.*.error", ErrorField::Error),
    ("choices.*.error.type", ErrorField::Type),
    ("choices.*.error.code", ErrorField::Code),
    ("x_groq.error", ErrorField::Error),
    ("x_groq.error.type", ErrorField::Type),
    ("x_groq.error.code", ErrorField::Code),
];
