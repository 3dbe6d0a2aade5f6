//! `inject` and `uninject`: manifests come in, and go out with the sidecar, or without it.
//!
//! Standard output has nothing but manifests, so that it can be piped into kubectl; what was done, left and lost is told
//! on standard error, a line each. As with a compiler, one refusal is the refusal of the whole: half of a change applied
//! to a cluster would be worse than none.

use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use json_patch::Patch;
use serde_json::Value;

use tokengauge_kubernetes::inject::{self, Around, Live, Outcome, Reason, Settings};
use tokengauge_kubernetes::yaml::{self, Document};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Beside an engine: Service → tokengauge → vLLM
    tokengauge inject --mode inbound vllm.yaml | kubectl apply -f -

  Beside an application that calls vendors, with telemetry to the node's collector:
    tokengauge inject --mode outbound --otlp-endpoint 'http://$(K8S_NODE_IP):4317' app.yaml

  What runs already, its Services included (those that name the port by number are led to the
  sidecar). It is put back whole: of what was never applied, kubectl apply keeps what is taken out:
    kubectl get deployments,services -o yaml |
      tokengauge inject --mode inbound - | kubectl replace -f -

  What kubectl apply has made: the manifest that it was given, and not what has become of it:
    kubectl apply view-last-applied deployment/chat -o yaml |
      tokengauge inject --mode outbound | kubectl apply -f -

  What kustomize builds; only workloads that ask for it by the annotation tokengauge.dev/mode:
    kubectl kustomize overlays/prod | tokengauge inject | kubectl apply -f -

  Of a chart's many workloads only the engine:
    helm template prod ./stack |
      tokengauge inject --mode inbound --only deployment/vllm | kubectl apply -f -

  In CI: are all manifests as inject would write them?
    tokengauge inject --check --mode inbound deploy/*.yaml

A pod's own annotations (tokengauge.dev/NAME, as the flags are called) go before the flags.
Manifests are edited as text: comments, order and quotes stay. What could not be kept is told.
Exit status: 0 also where objects were skipped; 1 where one was refused, and then nothing is written.")]
pub struct InjectArgs {
    /// Manifests (YAML or JSON, of one document or several); - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,

    /// Write nothing; exit with status 1 if anything would change
    #[arg(long)]
    check: bool,

    /// Only these workloads, as deployment/vllm; may be repeated [default: inbound those in which an engine is known by
    /// its image or command, or the only one; outbound all]
    #[arg(long, value_name = "KIND/NAME", value_delimiter = ',')]
    only: Vec<String>,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  As it was before, byte for byte:
    tokengauge uninject vllm.injected.yaml > vllm.yaml

  What runs already, put back whole: of what was never applied, kubectl apply keeps the sidecar:
    kubectl get deployments,services -o yaml |
      tokengauge uninject - | kubectl replace -f -

  What kubectl apply has made, from the manifest that it was given:
    kubectl apply view-last-applied deployment/chat -o yaml |
      tokengauge uninject | kubectl apply -f -

What was changed by somebody since inject is left as it is, and told.
Exit status: 0 also where there is nothing to take back; 1 where an object was refused, and then nothing is written.")]
pub struct UninjectArgs {
    /// Manifests (YAML or JSON, of one document or several); - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    files: Vec<PathBuf>,

    /// Write nothing; exit with status 1 if anything would change
    #[arg(long)]
    check: bool,
}

pub(super) fn inject(args: &InjectArgs) -> ExitCode {
    ended(&args.files, args.check, |sources| {
        changed_only(sources, Some(&args.settings), &args.only)
    })
}

pub(super) fn uninject(args: &UninjectArgs) -> ExitCode {
    ended(&args.files, args.check, |sources| changed(sources, None))
}

fn ended(
    files: &[PathBuf],
    check: bool,
    change: impl Fn(&[Source]) -> Result<Changed, String>,
) -> ExitCode {
    let result = files
        .iter()
        .map(Source::read)
        .collect::<Result<Vec<_>, _>>()
        .and_then(|sources| change(&sources));
    let changed = match result {
        Ok(changed) => changed,
        Err(wrong) => {
            tell(&[wrong]);
            return ExitCode::FAILURE;
        }
    };
    tell(&changed.told);
    if changed.refused > 0 {
        let objects = if changed.refused == 1 { "object was" } else { "objects were" };
        tell(&[format!("nothing is written: {} {objects} refused", changed.refused)]);
        return ExitCode::FAILURE;
    }
    if check {
        return if changed.changes { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    match io::stdout().lock().write_all(changed.text.as_bytes()) {
        // A reader that has gone (`| head`) is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Ok(()) | Err(_) => ExitCode::SUCCESS,
    }
}

fn tell(lines: &[String]) {
    let mut stderr = io::stderr().lock();
    for line in lines {
        // Where standard error cannot be written to either, there is nobody left to tell.
        drop(writeln!(stderr, "{line}"));
    }
}

/// A file, or standard input.
#[derive(Debug)]
pub struct Source {
    /// As messages name it.
    pub name: String,
    pub text: String,
}

impl Source {
    fn read(file: &PathBuf) -> Result<Self, String> {
        if file.as_os_str() == "-" {
            let mut stdin = io::stdin().lock();
            if stdin.is_terminal() {
                tell(&["reading manifests from standard input; end with Ctrl-D".to_owned()]);
            }
            let mut text = String::new();
            let read = stdin.read_to_string(&mut text);
            read.map_err(|error| format!("standard input: cannot be read ({error})"))?;
            return Ok(Self { name: "<stdin>".to_owned(), text });
        }
        let name = file.display().to_string();
        if file.is_dir() {
            return Err(format!(
                "{name}: is a folder; name its files ({name}/*.yaml), or pipe `kubectl kustomize {name}`"
            ));
        }
        let text = fs::read_to_string(file)
            .map_err(|error| format!("{name}: cannot be read ({error})"))?;
        Ok(Self { name, text })
    }
}

impl Source {
    fn documents(&self) -> Result<Vec<Document<'_>>, String> {
        yaml::documents(&self.text).map_err(|error| {
            let hint = if self.text.contains("{{") {
                "; this looks like a template: give inject what `helm template` makes of it"
            } else {
                ""
            };
            format!("{}: {error}{hint}", self.name)
        })
    }
}

/// What became of all sources.
#[derive(Debug, Default)]
pub struct Changed {
    /// One stream of documents. Not to be used where anything was refused.
    pub text: String,
    /// What was done, skipped, refused and lost, a line each.
    pub told: Vec<String>,
    pub changes: bool,
    pub refused: usize,
    /// Those that were read from a cluster and were changed, or left to what makes them.
    live: Vec<Live>,
}

/// Injects where there are settings, and takes back where there are none.
pub fn changed(sources: &[Source], settings: Option<&Settings>) -> Result<Changed, String> {
    changed_only(sources, settings, &[])
}

/// The same of these objects (`deployment/vllm`) only; of all where none is named.
fn changed_only(
    sources: &[Source],
    settings: Option<&Settings>,
    only: &[String],
) -> Result<Changed, String> {
    let documents = sources.iter().map(Source::documents).collect::<Result<Vec<_>, _>>()?;
    let all = documents.iter().flatten().flat_map(|document| inject::objects(document.value()));
    let objects: Vec<&Value> = all.map(|(_, object)| object).collect();
    if let Some(missing) = only.iter().find(|name| !named(&objects, name)) {
        let names = objects.iter().map(|object| inject::name(object));
        return Err(format!(
            "--only {missing}: the input has no such object; it has {}",
            names.collect::<Vec<_>>().join(", ")
        ));
    }
    let task = settings.map(|settings| (settings, Around::of_some(&objects, settings, only)));
    let mut changed = Changed::default();
    for (source, documents) in sources.iter().zip(&documents) {
        changed.separate(&source.text);
        let mut line = 1;
        for document in documents {
            let place = Place { file: &source.name, line };
            changed.document(&place, document, |object| match &task {
                Some((settings, around)) => inject::inject(object, around, settings),
                None => inject::uninject(object),
            });
            line += document.text().matches('\n').count();
        }
    }
    if changed.refused == 0 {
        let command = settings.map_or("uninject", |_| "inject");
        let ways = inject::ways_back(&changed.live, command);
        changed.told.extend(ways);
    }
    if changed.told.is_empty() && !changed.changes {
        changed.told.push("nothing is changed: no object in the input runs pods".to_owned());
    }
    Ok(changed)
}

fn named(objects: &[&Value], name: &str) -> bool {
    objects.iter().any(|object| inject::name(object) == *name)
}

/// Where a document begins.
struct Place<'a> {
    file: &'a str,
    line: usize,
}

impl Changed {
    /// Between two files stands `---`.
    fn separate(&mut self, next: &str) {
        if self.text.is_empty() {
            return;
        }
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        if next.starts_with('%') {
            // Directives may only follow the end of a document.
            self.text.push_str("...\n");
        } else if !next.starts_with("---") {
            self.text.push_str("---\n");
        }
    }

    fn document(
        &mut self,
        place: &Place<'_>,
        document: &Document<'_>,
        task: impl Fn(&Value) -> Outcome,
    ) {
        let begins = place.line + leading(document.text());
        let mut patch = Patch(Vec::new());
        for (pointer, object) in inject::objects(document.value()) {
            let at = format!("{}:{begins}: {}", place.file, inject::name(object));
            match task(object) {
                Outcome::Changed { patch: more, notes } => {
                    patch.0.extend(inject::within(more, &pointer).0);
                    self.live.extend(Live::of(object));
                    self.told.extend(notes.iter().map(|note| format!("{at}: {note}")));
                }
                Outcome::Skipped(Reason::Owned) => self.live.extend(Live::of(object)),
                Outcome::Skipped(reason) if reason.is_told() => {
                    self.told.push(format!("{at}: skipped: {reason}"))
                }
                Outcome::Skipped(_) => {}
                Outcome::Refused(problem) => {
                    self.refused += 1;
                    self.told.push(format!("{at}: refused: {problem}"));
                }
            }
        }
        if patch.0.is_empty() {
            self.text.push_str(document.text());
            return;
        }
        match document.edited(&patch) {
            Ok(edited) => {
                self.changes = true;
                self.text.push_str(&edited.text);
                let lost = edited.lost.iter().map(|lost| {
                    format!("{}:{}: lost: {}", place.file, place.line + lost.line - 1, lost.what)
                });
                self.told.extend(lost);
            }
            Err(error) => {
                self.refused += 1;
                self.told.push(format!("{}:{begins}: refused: {error}", place.file));
            }
        }
    }
}

/// How many lines stand before what a document says: markers, comments, blank lines.
fn leading(text: &str) -> usize {
    let empty = |line: &&str| {
        let line = line.trim();
        line.is_empty() || line == "---" || line.starts_with(['#', '%'])
    };
    text.lines().take_while(empty).count()
}
