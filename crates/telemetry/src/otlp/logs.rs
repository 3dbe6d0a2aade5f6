//! Encodes log export requests.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::logs::tonic::group_logs_by_resource_and_scope;
use opentelemetry_sdk::logs::LogBatch;
use prost::Message;

use crate::logs::QueuedLog;

/// Encodes an `ExportLogsServiceRequest`.
pub fn request(records: &[QueuedLog], resource: &ResourceAttributesWithSchema) -> Vec<u8> {
    let records: Vec<_> = records.iter().map(|(record, scope)| (record, scope)).collect();
    let resource_logs = group_logs_by_resource_and_scope(&LogBatch::new(&records), resource);
    ExportLogsServiceRequest { resource_logs }.encode_to_vec()
}
