//! Reading the file again: when it has changed, and when somebody says so (SIGHUP).

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::time::MissedTickBehavior;

use super::errors::ConfigErrors;
use super::load::load_text;
use super::{Config, RunArgs, file};
use tokengauge_llm::count::Tokenisers;

/// How often the file's content is looked at. Kubernetes swaps a symbolic link under a mounted ConfigMap, some minute
/// after the change; inotify on the file itself never hears of that, and reading a few KiB costs next to nothing.
const PERIOD: Duration = Duration::from_secs(5);

/// Loads the configuration, and loads it again when the file has changed.
#[derive(Debug)]
pub struct ConfigWatcher {
    args: RunArgs,
    environment: fn(&str) -> Option<String>,
    /// The file as last seen. Compared whole rather than by a hash: it is small, and time stamps and inodes lie.
    seen: Option<Result<String, ConfigErrors>>,
    /// The file of prices that it names, as last seen.
    prices: Option<(PathBuf, Result<String, ConfigErrors>)>,
    /// As last loaded: one that is still the same is not read again.
    tokenizers: Tokenisers,
}

impl ConfigWatcher {
    pub fn new(args: RunArgs, environment: fn(&str) -> Option<String>) -> Self {
        let seen = None;
        Self { args, environment, seen, prices: None, tokenizers: Tokenisers::default() }
    }

    /// Loads everything as it is now.
    pub fn load(&mut self) -> Result<Config, ConfigErrors> {
        let text = self.args.config.as_deref().map(file::read);
        self.seen.clone_from(&text);
        // Before it is read for good: what changes in between is then seen as a change.
        let known = self.prices.take().map(|(path, _)| looked_at(path));
        let text = text.transpose()?;
        let environment = &self.environment;
        let loaded = load_text(text.as_deref(), &self.args, environment, &self.tokenizers);
        let named = match &loaded {
            Ok(config) => config.prices.clone(),
            // Mended prices have to be seen too, also where the configuration that names them never was in force.
            Err(errors) => {
                let other = |file: &&Path| Some(*file) != self.args.config.as_deref();
                let wrong = errors.files().find(other).map(Path::to_owned);
                wrong.or_else(|| known.as_ref().map(|(path, _)| path.clone()))
            }
        };
        let same = |(path, _): &(PathBuf, _)| Some(path) == named.as_ref();
        self.prices = known.filter(same).or_else(|| named.clone().map(looked_at));
        let config = loaded?;
        self.tokenizers = config.tokenizers.clone();
        Ok(config)
    }

    /// Loads everything if the file, or that of the prices, is not what it was when it was last loaded. One that cannot
    /// be read, or is wrong, is told once.
    pub fn load_if_changed(&mut self) -> Option<Result<Config, ConfigErrors>> {
        let now = self.args.config.as_deref().map(file::read);
        let priced = self.prices.as_ref();
        let repriced = priced.is_some_and(|(path, seen)| file::read(path) != *seen);
        (repriced || now != self.seen).then(|| self.load())
    }

    /// Hands every later configuration, or what is wrong with it, to `apply`; does not return. `hang_up` says when to
    /// load whether or not the file has changed. Needs a tokio runtime, and blocks its caller while it reads: the file is
    /// small and local, but a tokeniser that is new in it takes up to a second. So not to be run on a worker.
    pub async fn run(
        mut self,
        mut hang_up: Signal,
        mut apply: impl FnMut(Result<Config, ConfigErrors>),
    ) -> Infallible {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let loaded = tokio::select! {
                _ = hang_up.recv() => Some(self.load()),
                _ = ticks.tick() => self.load_if_changed(),
            };
            if let Some(loaded) = loaded {
                apply(loaded);
            }
        }
    }
}

fn looked_at(path: PathBuf) -> (PathBuf, Result<String, ConfigErrors>) {
    let text = file::read(&path);
    (path, text)
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
    fn a_changed_file_is_loaded_once() {
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
    fn changed_prices_are_a_change() {
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
        let wrong = watch.load_if_changed().unwrap().unwrap_err().to_string();
        assert!(wrong.contains("p.yaml:3:28: models[0].input: \"cheap\" is no amount"), "{wrong}");
        assert!(watch.load_if_changed().is_none(), "it is told once");
        price("3.5");
        let loaded = watch.load_if_changed().unwrap().unwrap();
        assert!((input(loaded) - 3.5).abs() < 1e-9, "mended");
        std::fs::remove_file(&prices).unwrap();
        assert!(watch.load_if_changed().unwrap().is_err(), "gone");
    }

    #[test]
    fn prices_that_were_wrong_when_they_were_first_named_are_read_once_they_are_mended() {
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
        assert!(watch.load_if_changed().is_none(), "it is told once");
        let mended = "version: 1\ncurrency: USD\nmodels: [{model: m, input: 1}]\n";
        std::fs::write(path("p.yaml"), mended).unwrap();
        let loaded = watch.load_if_changed().unwrap().unwrap();
        assert_eq!(loaded.costs.prices.models.len(), 1);
        assert!(watch.load_if_changed().is_none());
    }

    #[test]
    fn a_swapped_link_is_a_change() {
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
    fn a_file_that_went_wrong_is_told_once_and_again_when_it_is_right() {
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
    fn without_a_file_nothing_ever_changes() {
        let args =
            RunArgs { upstream: vec![super::super::Secret::new("http://h")], ..RunArgs::default() };
        let mut watch = ConfigWatcher::new(args, |_| None);
        watch.load().unwrap();
        assert!(watch.load_if_changed().is_none());
    }
}
