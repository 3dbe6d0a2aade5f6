//! `tokengauge inject` and `tokengauge uninject`: add the sidecar to manifests, and remove it.
//!
//! Standard output contains only manifests, so that it can be piped into kubectl. Standard error has one line for each
//! change, skipped object and lost part of the text. If one object is refused, no manifest is written. Otherwise,
//! kubectl would apply only a part of the changes.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::{write_stderr, write_stdout};
use tokengauge_kubernetes::inject::Settings;
use tokengauge_kubernetes::manifests::{ManifestFile, Operation, change_manifests};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  All examples need the sidecar's image, in --image or:
    export TOKENGAUGE_IMAGE=REGISTRY/tokengauge:VERSION

  In front of an engine: Service → tokengauge → vLLM
    tokengauge inject --mode inbound vllm.yaml | kubectl apply -f -

  Next to an application that calls providers, with telemetry to the node's collector:
    tokengauge inject --mode outbound --otlp-endpoint 'http://$(K8S_NODE_IP):4317' app.yaml

  Running objects that kubectl apply did not create. Include their Services: those that target
  the port by number are pointed to the sidecar. Use kubectl replace, because kubectl apply does
  not remove fields from such objects:
    kubectl get deployments,services -o yaml |
      tokengauge inject --mode inbound - | kubectl replace -f -

  Objects that kubectl apply created, from the manifest that was applied:
    kubectl apply view-last-applied deployment/chat -o yaml |
      tokengauge inject --mode outbound | kubectl apply -f -

  Output of kustomize; only workloads with the annotation tokengauge.dev/mode:
    kubectl kustomize overlays/prod | tokengauge inject | kubectl apply -f -

  Only the engine of a chart with many workloads:
    helm template prod ./stack |
      tokengauge inject --mode inbound --only deployment/vllm | kubectl apply -f -

  In CI: check that all manifests match the output of inject:
    tokengauge inject --check --mode inbound deploy/*.yaml

A pod's own annotations (tokengauge.dev/NAME, with the names of the flags) override the flags.
Manifests are edited as text: comments, order and quotes are kept, and every loss is reported.
Exit status: 0, even if objects were skipped; 1 if an object was refused, or with --strict if a sidecar
would get no calls. Then nothing is written.")]
pub struct InjectArgs {
    /// Manifests (YAML or JSON, with one document or several); - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,

    /// Write nothing; exit with status 1 if anything would change
    #[arg(long)]
    check: bool,

    /// Write nothing, and exit with status 1, if no container of a workload sends calls to the sidecar
    #[arg(long)]
    strict: bool,

    /// Inject only these workloads, such as deployment/vllm; may be repeated [default: inbound: workloads with the
    /// image or command of a known engine, or the only workload; outbound: all workloads]
    #[arg(long, value_name = "KIND/NAME", value_delimiter = ',')]
    only: Vec<String>,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Restore a manifest byte for byte:
    tokengauge uninject vllm.injected.yaml > vllm.yaml

  Running objects that kubectl apply did not create. Use kubectl replace, because kubectl apply
  would keep the sidecar:
    kubectl get deployments,services -o yaml |
      tokengauge uninject - | kubectl replace -f -

  Objects that kubectl apply created, from the manifest that was applied:
    kubectl apply view-last-applied deployment/chat -o yaml |
      tokengauge uninject | kubectl apply -f -

Fields that were modified after injection are kept and reported.
Exit status: 0, even if there is nothing to remove; 1 if an object was refused, and then nothing is written.")]
pub struct UninjectArgs {
    /// Manifests (YAML or JSON, with one document or several); - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,

    /// Write nothing; exit with status 1 if anything would change
    #[arg(long)]
    check: bool,
}

pub(super) fn inject(args: &InjectArgs) -> ExitCode {
    let operation = Operation::Inject { settings: &args.settings, only: &args.only };
    run(&args.files, Options { check: args.check, strict: args.strict }, operation)
}

pub(super) fn uninject(args: &UninjectArgs) -> ExitCode {
    run(&args.files, Options { check: args.check, strict: false }, Operation::Uninject)
}

/// The flags `--check` and `--strict`.
#[derive(Clone, Copy)]
struct Options {
    check: bool,
    strict: bool,
}

fn run(files: &[PathBuf], options: Options, operation: Operation<'_>) -> ExitCode {
    let result = files
        .iter()
        .map(|file| read_manifest(file))
        .collect::<Result<Vec<_>, _>>()
        .and_then(|files| change_manifests(&files, operation));
    let changed = match result {
        Ok(changed) => changed,
        Err(message) => {
            write_stderr(message);
            return ExitCode::FAILURE;
        }
    };
    changed.messages.iter().for_each(write_stderr);
    if changed.refused > 0 {
        let objects = if changed.refused == 1 { "object was" } else { "objects were" };
        write_stderr(format!("nothing is written: {} {objects} refused", changed.refused));
        return ExitCode::FAILURE;
    }
    if options.strict && !changed.unused.is_empty() {
        return ExitCode::FAILURE;
    }
    let has_failed =
        if options.check { changed.has_changes } else { write_stdout(&changed.text).is_err() };
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Reads a manifest file, or standard input for `-`.
fn read_manifest(file: &Path) -> Result<ManifestFile, String> {
    if file.as_os_str() == "-" {
        let mut stdin = io::stdin().lock();
        if stdin.is_terminal() {
            write_stderr("reading manifests from standard input; end with Ctrl-D");
        }
        let mut text = String::new();
        let read = stdin.read_to_string(&mut text);
        read.map_err(|error| format!("cannot read standard input: {error}"))?;
        return Ok(ManifestFile { name: "<stdin>".to_owned(), text });
    }
    let name = file.display().to_string();
    if file.is_dir() {
        return Err(format!(
            "{name}: is a directory; name its files ({name}/*.yaml), or pipe the output of `kubectl kustomize {name}`"
        ));
    }
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: cannot read: {error}"))?;
    Ok(ManifestFile { name, text })
}
