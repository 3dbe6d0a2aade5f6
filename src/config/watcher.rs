//! Reloads the configuration when a file changes or the process receives SIGHUP.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::time::{self, Instant, MissedTickBehavior};

use super::errors::ConfigErrors;
use super::load::load_text;
use super::{Config, RunArgs, file};
use tokengauge_llm::count::Tokenizers;

/// Interval at which the files are read. Polling is needed, because inotify does not report the change of a ConfigMap:
/// Kubernetes replaces a symbolic link, up to a minute later. Reading a few KiB costs little.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// SHA-256 of a file, or the reason why the file cannot be read. Timestamps and inodes do not show every change.
type Digest = Result<[u8; 32], String>;

/// Loads the configuration, and loads it again whenever its files have changed.
#[derive(Debug)]
pub struct ConfigWatcher {
    args: RunArgs,
    environment: fn(&str) -> Option<String>,
    /// The configuration file and the files that it names: prices, certificates and keys. Each has its digest at the
    /// last load.
    files: Vec<(PathBuf, Digest)>,
    /// Files that the configuration does not name, such as those of environment variables.
    other_files: Vec<PathBuf>,
    /// Loaded tokenizers. A tokenizer is parsed again only if its file has changed.
    tokenizers: Tokenizers,
}

impl ConfigWatcher {
    pub fn new(args: RunArgs, environment: fn(&str) -> Option<String>) -> Self {
        let files = args.config.clone().into_iter().map(with_digest).collect();
        let tokenizers = Tokenizers::default();
        Self { args, environment, files, other_files: Vec::new(), tokenizers }
    }

    /// Watches further files, too. A change of one of them loads the configuration again.
    pub fn watch_also(&mut self, files: impl Iterator<Item = PathBuf>) {
        let files: Vec<PathBuf> = files.collect();
        self.files.extend(files.iter().cloned().map(with_digest));
        self.other_files.extend(files);
    }

    /// Loads the configuration.
    ///
    /// # Errors
    /// Returns all errors in flags, variables and files.
    pub fn load(&mut self) -> Result<Config, ConfigErrors> {
        // The digests are taken before the files are parsed. A change between the two is then noticed at the next poll.
        let previous: Vec<_> = self.files.drain(..).map(|(path, _)| with_digest(path)).collect();
        self.files.clone_from(&previous);
        let text = self.args.config.as_deref().map(file::read).transpose()?;
        let environment = &self.environment;
        let loaded = load_text(text.as_deref(), &self.args, environment, &self.tokenizers);
        let mut paths: Vec<PathBuf> = match &loaded {
            Ok(config) => files_of(config),
            // A price file with errors must be watched too, even if its configuration never took effect.
            Err(errors) => {
                let invalid = errors.files().map(Path::to_owned);
                invalid.chain(previous.iter().map(|(path, _)| path.clone())).collect()
            }
        };
        paths.extend(self.args.config.clone());
        paths.extend(self.other_files.clone());
        paths.sort_unstable();
        paths.dedup();
        let known = |path: &PathBuf| previous.iter().find(|(known, _)| known == path).cloned();
        let watched =
            paths.into_iter().map(|path| known(&path).unwrap_or_else(|| with_digest(path)));
        self.files = watched.collect();
        let config = loaded?;
        self.tokenizers = config.tokenizers.clone();
        Ok(config)
    }

    /// Loads the configuration if a watched file has changed since the last load, and otherwise returns `None`. An
    /// error is therefore returned only once.
    pub fn load_if_changed(&mut self) -> Option<Result<Config, ConfigErrors>> {
        let has_changed = |(path, last): &(PathBuf, Digest)| file::digest(path) != *last;
        self.files.iter().any(has_changed).then(|| self.load())
    }

    /// Calls `apply` with every changed configuration, or with its errors. The signal `hang_up` (SIGHUP) forces a load.
    ///
    /// Never returns. Needs a tokio runtime. Files are read on a blocking thread, so that a file system that hangs does
    /// not delay a shutdown.
    pub async fn run(
        mut self,
        mut hang_up: Signal,
        mut apply: impl FnMut(Result<Config, ConfigErrors>),
    ) -> Infallible {
        let mut ticks = time::interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_forced = tokio::select! {
                _ = hang_up.recv() => true,
                _ = ticks.tick() => false,
            };
            let loading = tokio::task::spawn_blocking(move || {
                let loaded = if is_forced { Some(self.load()) } else { self.load_if_changed() };
                (self, loaded)
            });
            let (watcher, loaded) = loading.await.expect("loading does not panic");
            self = watcher;
            if let Some(loaded) = loaded {
                apply(loaded);
            }
        }
    }
}

/// Returns the files that the configuration names and that the proxy watches for changes.
fn files_of(config: &Config) -> Vec<PathBuf> {
    let tls = config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    let tls = tls.flat_map(|tls| [&tls.certificate, &tls.key]);
    let scrapes = config.scrapes.iter().map(|scrape| &scrape.to);
    let authorities = config.upstreams.iter().chain(scrapes);
    let authorities = authorities.filter_map(|server| server.ca_file.as_ref());
    config
        .file
        .cost
        .prices
        .iter()
        .map(|path| &path.value.0)
        .chain(tls)
        .chain(authorities)
        .cloned()
        .collect()
}

fn with_digest(path: PathBuf) -> (PathBuf, Digest) {
    let digest = file::digest(&path);
    (path, digest)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn watch(file: &Path) -> ConfigWatcher {
        let args = RunArgs { config: Some(file.to_owned()), ..RunArgs::default() };
        ConfigWatcher::new(args, |_| None)
    }

    fn write(file: &Path, host: &str) {
        let text = format!("version: 1\nupstreams: {{a: {{url: \"http://{host}\"}}}}\n");
        std::fs::write(file, text).unwrap();
    }

    fn host(loaded: Option<Result<Config, ConfigErrors>>) -> Option<String> {
        Some(loaded?.unwrap().upstreams.remove(0).host)
    }

    #[test]
    fn loads_a_changed_file_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("c.yaml");
        write(&file, "one");
        let mut watch = watch(&file);
        assert_eq!(host(Some(watch.load())).as_deref(), Some("one"));
        assert_eq!(host(watch.load_if_changed()), None, "nothing has changed");
        write(&file, "two");
        assert_eq!(host(watch.load_if_changed()).as_deref(), Some("two"));
        assert_eq!(host(watch.load_if_changed()), None);
    }

    #[test]
    fn loads_again_when_prices_change() {
        let directory = tempfile::tempdir().unwrap();
        let (file, prices) = (directory.path().join("c.yaml"), directory.path().join("p.yaml"));
        let text = format!(
            "version: 1\nupstreams: {{a: {{url: \"http://a\"}}}}\ncost: {{prices: {}}}\n",
            prices.display()
        );
        std::fs::write(&file, text).unwrap();
        let price = |input: &str| {
            let text =
                format!("version: 1\ncurrency: USD\nmodels: [{{model: m, input: {input}}}]\n");
            std::fs::write(&prices, text).unwrap();
        };
        let input = |config: Config| config.costs.prices.models[0].input;
        price("1.5");
        let mut watch = watch(&file);
        assert!((input(watch.load().unwrap()) - 1.5).abs() < 1e-9);
        assert!(watch.load_if_changed().is_none(), "nothing has changed");
        price("2.5");
        let loaded = watch.load_if_changed().unwrap().unwrap();
        assert!((input(loaded) - 2.5).abs() < 1e-9);
        price("cheap");
        let message = watch.load_if_changed().unwrap().unwrap_err().to_string();
        assert!(message.contains("p.yaml:3:28: models[0].input: \"cheap\" is n"), "{message}");
        assert!(watch.load_if_changed().is_none(), "an error is reported once");
        price("3.5");
        let loaded = watch.load_if_changed().unwrap().unwrap();
        assert!((input(loaded) - 3.5).abs() < 1e-9, "corrected");
        std::fs::remove_file(&prices).unwrap();
        assert!(watch.load_if_changed().unwrap().is_err(), "deleted");
    }

    #[test]
    fn loads_again_when_any_of_several_price_files_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, model: &str, input: &str| {
            let text = format!(
                "version: 1\ncurrency: USD\nmodels: [{{model: {model}, input: {input}}}]\n"
            );
            std::fs::write(path(name), text).unwrap();
        };
        write("list.yaml", "m", "1");
        write("own.yaml", "n", "2");
        let text = "version: 1\nupstreams: {a: {url: \"http://a\"}}\ncost: {prices: [list.yaml, own.yaml]}\n";
        std::fs::write(path("c.yaml"), text).unwrap();
        let inputs = |config: Config| -> Vec<f64> {
            config.costs.prices.models.iter().map(|price| price.input).collect()
        };
        let mut watch = watch(&path("c.yaml"));
        assert_eq!(inputs(watch.load().unwrap()), [1.0, 2.0]);
        assert!(watch.load_if_changed().is_none(), "nothing has changed");
        write("list.yaml", "m", "3");
        assert_eq!(inputs(watch.load_if_changed().unwrap().unwrap()), [3.0, 2.0]);
        write("own.yaml", "m", "4");
        assert_eq!(inputs(watch.load_if_changed().unwrap().unwrap()), [4.0], "own.yaml wins");
        write("own.yaml", "m", "cheap");
        let message = watch.load_if_changed().unwrap().unwrap_err().to_string();
        assert!(message.contains("own.yaml:3:28: models[0].input: \"cheap\" is n"), "{message}");
        assert!(watch.load_if_changed().is_none(), "an error is reported once");
    }

    #[test]
    fn loads_again_when_a_certificate_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let text = format!(
            "version: 1\nupstreams: {{a: {{url: \"https://a\", ca_file: {}}}}}\n\
             listeners: [{{address: 127.0.0.1:1, tls: {{certificate: {}, key: {}}}}}]\n",
            path("ca").display(),
            path("certificate").display(),
            path("key").display()
        );
        std::fs::write(path("c.yaml"), text).unwrap();
        let mut watch = watch(&path("c.yaml"));
        let digest = watch.load().unwrap().upstreams[0].ca_digest;
        for name in ["certificate", "key", "ca"] {
            std::fs::write(path(name), "one").unwrap();
            assert!(watch.load_if_changed().is_some(), "{name} was created");
            assert!(watch.load_if_changed().is_none(), "{name}");
            std::fs::write(path(name), "two").unwrap();
            let config = watch.load_if_changed().unwrap().unwrap();
            assert_eq!(config.upstreams[0].ca_digest != digest, name == "ca", "{name}");
        }
    }

    #[test]
    fn watches_a_price_file_that_was_invalid_from_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        write(&path("c.yaml"), "a");
        let mut watch = watch(&path("c.yaml"));
        assert!(watch.load().is_ok());
        std::fs::write(path("p.yaml"), "version: 1\nmodels: [{model: m}]\n").unwrap();
        let text = format!(
            "version: 1\nupstreams: {{a: {{url: \"http://a\"}}}}\ncost: {{prices: {}}}\n",
            path("p.yaml").display()
        );
        std::fs::write(path("c.yaml"), text).unwrap();
        assert!(watch.load_if_changed().unwrap().is_err());
        assert!(watch.load_if_changed().is_none(), "an error is reported once");
        let corrected = "version: 1\ncurrency: USD\nmodels: [{model: m, input: 1}]\n";
        std::fs::write(path("p.yaml"), corrected).unwrap();
        let loaded = watch.load_if_changed().unwrap().unwrap();
        assert_eq!(loaded.costs.prices.models.len(), 1);
        assert!(watch.load_if_changed().is_none());
    }

    #[test]
    fn notices_a_swapped_symbolic_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for version in ["v1", "v2"] {
            std::fs::create_dir(path(version)).unwrap();
            write(&path(version).join("c.yaml"), version);
        }
        symlink("v1", path("..data")).unwrap();
        symlink("..data/c.yaml", path("c.yaml")).unwrap();
        let mut watch = watch(&path("c.yaml"));
        assert_eq!(host(Some(watch.load())).as_deref(), Some("v1"));
        symlink("v2", path("..data_tmp")).unwrap();
        std::fs::rename(path("..data_tmp"), path("..data")).unwrap();
        assert_eq!(host(watch.load_if_changed()).as_deref(), Some("v2"));
    }

    #[test]
    fn reports_an_invalid_file_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("c.yaml");
        write(&file, "one");
        let mut watch = watch(&file);
        watch.load().unwrap();
        std::fs::write(&file, "version: 2\n").unwrap();
        assert!(watch.load_if_changed().unwrap().is_err());
        assert!(watch.load_if_changed().is_none());
        std::fs::remove_file(&file).unwrap();
        assert!(watch.load_if_changed().unwrap().is_err());
        assert!(watch.load_if_changed().is_none());
        write(&file, "one");
        assert_eq!(host(watch.load_if_changed()).as_deref(), Some("one"));
    }

    #[test]
    fn never_reloads_without_a_file() {
        let args =
            RunArgs { upstream: vec![super::super::Secret::new("http://h")], ..RunArgs::default() };
        let mut watch = ConfigWatcher::new(args, |_| None);
        watch.load().unwrap();
        assert!(watch.load_if_changed().is_none());
    }
}
