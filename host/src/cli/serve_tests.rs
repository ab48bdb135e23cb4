//! Settings of `serve` from flags, variables and the file, and the line of each option in the docs.

use std::collections::BTreeSet;
use std::io::Write as _;

use clap::Arg;
use clap::builder::Resettable;
use gristmill_api::RateLimits;
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::OwnerBounds;
use gristmill_core::deploy::network::Network;
use gristmill_core::job::policy::Strictness;

use super::*;

const CONFIGURATION: &str = include_str!("../../../docs/reference/configuration.md");

/// Flags and switches that set no value of the configuration file.
const ONLY_FLAGS: [&str; 3] = ["config", "accept-clock", "manual-clock"];

/// The options without those that the environment of this test may have.
fn command() -> Command {
    let command = ServeArgs::augment_args(Command::new("serve"));
    command.mut_args(|option| option.env(Resettable::Reset))
}

fn args(command: Command, flags: &[&str]) -> Result<ServeArgs, clap::Error> {
    let words = std::iter::once(&"serve").chain(flags);
    ServeArgs::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// The settings of these flags.
fn from_flags(flags: &[&str]) -> anyhow::Result<ServeSettings> {
    let settings = args(command(), flags)?.settings()?;
    settings.check()?;
    Ok(settings)
}

/// The settings of these flags over this file.
fn from_file(flags: &[&str], text: &str) -> anyhow::Result<ServeSettings> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    let path = file.path().to_str().unwrap();
    from_flags(&[&["--config", path], flags].concat())
}

#[test]
fn without_options_the_defaults_hold() {
    let settings = from_flags(&[]).unwrap();
    assert_eq!(settings, ServeSettings::default());
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.data_dir, Path::new("./gristmill-data"));
    assert_eq!(settings.strictness(), Strictness::Refuse);
    assert_eq!(settings.journal_mib.mib_as_bytes(), 1 << 30);
    assert_eq!((settings.max_running_jobs, settings.drain_timeout.get()), (None, 30));
    assert_eq!(
        (settings.max_waiting_jobs.get(), settings.max_sandbox_memory_mib),
        (2_000_000, None)
    );
    let of_owners = OwnerBounds {
        kept_workers_max: u64::from(settings.sandboxes_max()) / 2,
        ..OwnerBounds::default()
    };
    assert_eq!(settings.owner_bounds(), of_owners);
    assert_eq!(settings.clock_jump_max().unwrap().as_secs(), 3_600);
    let limits = settings.connections();
    assert_eq!((limits.connections_max, limits.is_set), (20_000, false));
    assert_eq!(limits.idle_wait.as_secs(), 75);
    let of_address = limits.of_address;
    assert_eq!((of_address.connections_max, of_address.is_for_loopback), (1_250, false));
    assert!(settings.tls().is_none());
}

#[test]
fn the_bound_of_an_address_follows_the_bound_of_all_unless_it_is_given() {
    let bound = |text| {
        let of_address = from_file(&[], text).unwrap().connections().of_address;
        (of_address.connections_max, of_address.is_for_loopback)
    };
    assert_eq!(bound("max-connections = 10"), (1, false));
    assert_eq!(bound("max-address-connections = 7"), (7, true));
}

#[test]
fn a_flag_wins_over_the_file() {
    let flags = ["--listen", "[::1]:0", "--lenient-policy=false"];
    let file = "listen = \"0.0.0.0:80\"\nlenient-policy = true\nmax-running-jobs = 8\n\
        max-sandbox-memory-mib = 512\n\
        max-waiting-jobs = 9\njournal-mib = 64\njson = true\nwebhook-allow = [\"10.0.0.1:80\", \"a.lan\"]";
    let settings = from_file(&flags, file).unwrap();
    assert_eq!(settings.listen.to_string(), "[::1]:0");
    assert_eq!(settings.strictness(), Strictness::Refuse);
    assert_eq!((settings.sandboxes_max(), settings.journal_mib.get()), (8, 64));
    assert_eq!(settings.max_waiting_jobs.get(), 9);
    assert_eq!(settings.max_sandbox_memory_mib.unwrap().mib_as_bytes(), 512 << 20);
    assert_eq!(settings.rate_limits, RateLimits::default());
    let receivers = |settings: &ServeSettings| {
        settings.webhook_allow.iter().cloned().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(receivers(&settings), ["10.0.0.1:80", "a.lan"]);
    let settings = from_file(&["--webhook-allow", "b.lan"], file).unwrap();
    assert_eq!(receivers(&settings), ["b.lan"]);
    assert!(settings.json);
    let default_given = from_file(&["--journal-mib", "1024"], file).unwrap();
    assert_eq!(default_given.journal_mib.get(), 1_024, "the text of the default is a value too");
}

#[test]
fn denied_networks_come_from_the_file_or_from_flags() {
    let network = |text: &str| text.parse::<Network>().unwrap();
    let file = "egress-deny = [\"93.184.216.0/24\", \"2001:db8::1\"]";
    let denied = |flags: &[&str]| from_file(flags, file).unwrap().egress_deny;
    assert_eq!(denied(&[]), [network("93.184.216.0/24"), network("2001:db8::1/128")]);
    assert_eq!(denied(&["--egress-deny", "10.0.0.0/8"]), [network("10.0.0.0/8")]);
    let wrong = format!("{:#}", from_file(&[], "egress-deny = [\"10.0.0.0/40\"]").unwrap_err());
    assert!(wrong.contains("`10.0.0.0/40` is not a network: write `10.0.0.0/8`"), "{wrong}");
}

#[test]
fn one_operation_can_be_given_another_limit() {
    let file = "[rate-limits.run]\ncalls-per-10s = 7\nconcurrent = 3\ncalls-per-worker = 0";
    let limits = from_file(&["--json"], file).unwrap().rate_limits;
    assert_eq!((limits.run.calls_per_10s, limits.run.concurrent), (7, Some(3)));
    assert_eq!(limits.status, RateLimits::default().status);
}

#[test]
fn prices_are_read_and_their_mistakes_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let prices = || from_flags(&["--prices", &path]).unwrap().read_prices();
    assert_eq!(prices().unwrap(), Prices::default());
    writeln!(file, "wall-second = 0.00012\njob = 1").unwrap();
    assert_eq!(prices().unwrap().wall_second, "0.00012".parse().unwrap());
    let in_file = from_file(&[], &format!("prices = {path:?}")).unwrap();
    assert_eq!(in_file.read_prices().unwrap(), prices().unwrap());
    writeln!(file, "gpu-second = 1").unwrap();
    let complaint = format!("{:#}", prices().unwrap_err());
    assert!(complaint.contains("cannot use the price table"), "{complaint}");
    assert!(complaint.contains("unknown field `gpu-second`"), "{complaint}");
    let missing = from_flags(&["--prices", "/no/such/file"]).unwrap();
    assert!(missing.read_prices().is_err());
}

#[test]
fn only_a_loopback_address_goes_without_keys() {
    assert!(!from_flags(&[]).unwrap().no_key, "it is no default");
    let open = |listen: &str| from_flags(&["--no-key", "--listen", listen]);
    for listen in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:8080"] {
        assert!(open(listen).unwrap().no_key, "{listen}");
    }
    for listen in ["0.0.0.0:8080", "10.0.0.1:8080", "[::]:8080"] {
        let complaint = open(listen).unwrap_err().to_string();
        assert!(complaint.contains("no-key needs a loopback address"), "{complaint}");
    }
    assert!(from_file(&[], "no-key = true").unwrap().no_key);
    assert!(!from_file(&["--no-key=false"], "no-key = true").unwrap().no_key);
    assert!(from_file(&[], "no-key = true\nlisten = \"0.0.0.0:1\"").is_err());
}

#[test]
fn mistakes_in_the_file_are_named() {
    let complaint = |text| format!("{:#}", from_file(&[], text).unwrap_err());
    for (line, allowed) in [
        ("max-running-jobs = 0", "`0`, expected a whole number from 1 to 4096"),
        ("max-running-jobs = -1", "`-1`, expected a whole number from 1 to 4096"),
        ("max-running-jobs = \"8\"", "string \"8\", expected a whole number from 1 to 4096"),
        ("max-sandbox-memory-mib = 0", "expected a whole number from 1 to 16777216"),
        ("max-waiting-jobs = 0", "expected a whole number from 1 to 2000000"),
        ("journal-mib = 1", "expected a whole number from 16 to 65536"),
        ("drain-timeout = 3601", "expected a whole number from 0 to 3600"),
        ("idle-timeout = 0", "expected a whole number from 1 to 3600"),
        ("log = \"a=loud\"", "`a=loud` is not a log filter"),
        ("brand = \"a-b\"", "`a-b` is not a brand: only letters and digits"),
        ("lissten = \"x\"", "unknown field `lissten`, expected one of `listen`, `data-dir`"),
        ("config = \"x\"", "unknown field `config`"),
        ("accept-clock = true", "unknown field `accept-clock`"),
        ("manual-clock = \"now\"", "unknown field `manual-clock`"),
    ] {
        let shown = complaint(line);
        assert!(shown.starts_with("cannot use the configuration file /"), "{shown}");
        assert!(shown.contains(&format!("\n1 | {line}\n")), "{line}: {shown}");
        assert!(shown.contains(allowed), "{line}: {shown}");
    }
    for line in ["tls-cert = \"a\"", "tls-key = \"a\""] {
        let shown = complaint(line);
        assert!(shown.starts_with("cannot use the configuration file /"), "{shown}");
        assert!(shown.ends_with(": tls-cert and tls-key must be given together"), "{shown}");
    }
    let half = ServeSettings { tls_cert: Some("a".into()), ..ServeSettings::default() };
    assert!(half.check().is_err(), "a host with half of a pair would serve without TLS");
    let missing = format!("{:#}", from_flags(&["--config", "/no/such/file"]).unwrap_err());
    assert!(missing.starts_with("cannot use the configuration file /no/such/file: "), "{missing}");
}

/// Two values for an option, both other than its default, as texts for the command line. Finds
/// them by trying, so that a new option needs no change here.
fn samples(option: &Arg) -> [String; 2] {
    let name = option.get_long().unwrap();
    let texts = [
        "true",
        "77",
        "78",
        "127.0.0.9:1",
        "127.0.0.9:2",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "postgres://h/a",
        "postgres://h/b",
        "debug",
        "warn",
        "a",
        "b",
    ];
    let is_sample = |text: &&str| {
        from_partial_flags(&[&format!("--{name}={text}")])
            .is_ok_and(|settings| settings != ServeSettings::default())
    };
    let mut found = texts.iter().filter(|text| is_sample(text)).map(|text| (*text).to_owned());
    let first = found.next().unwrap_or_else(|| panic!("no sample for --{name}"));
    let second = found.next().unwrap_or_else(|| "false".to_owned());
    [first, second]
}

/// The settings of these flags, even if other flags are missing that they need.
fn from_partial_flags(flags: &[&str]) -> anyhow::Result<ServeSettings> {
    let command = command().mut_args(|option| option.requires(Resettable::Reset));
    args(command, flags)?.settings()
}

/// The lines of a file that could mean this text.
fn lines(name: &str, text: &str) -> [String; 3] {
    [format!("{name} = {text}"), format!("{name} = {text:?}"), format!("{name} = [{text:?}]")]
}

#[test]
fn each_option_has_a_flag_a_variable_a_key_in_the_file_and_a_line_in_the_documents() {
    let with_environment = ServeArgs::augment_args(Command::new("serve"));
    let mut names = BTreeSet::new();
    for option in with_environment.get_arguments() {
        let name = option.get_long().unwrap();
        assert!(
            CONFIGURATION.contains(&format!("`--{name}")) || option.is_hide_set(),
            "docs/reference/configuration.md does not mention `--{name}`"
        );
        let variable = format!("GRISTMILL_{}", name.replace('-', "_").to_uppercase());
        match option.get_env() {
            Some(given) => assert_eq!(given.to_str(), Some(variable.as_str())),
            None => {
                assert!(["no-key", "accept-clock", "manual-clock"].contains(&name), "{name}")
            }
        }
        if ONLY_FLAGS.contains(&name) {
            continue;
        }
        names.insert(name.to_owned());
        let [first, second] = samples(option);
        let flag = |text: &str| from_partial_flags(&[&format!("--{name}={text}")]).unwrap();
        let read = |line: &String| toml::from_str::<ServeSettings>(line);
        let same = |line: &String| read(line).is_ok_and(|settings| settings == flag(&first));
        let line = lines(name, &first).into_iter().find(same);
        let line = line.unwrap_or_else(|| panic!("--{name} cannot be set in the file"));
        let below = read(&line).unwrap();
        let over = args(command(), &[]).unwrap();
        assert_eq!(below.clone().overridden_by(&over.matches).unwrap(), below, "{name}");
        let over = command().mut_args(|option| option.requires(Resettable::Reset));
        let over = args(over, &[&format!("--{name}={second}")]).unwrap();
        assert_eq!(below.overridden_by(&over.matches).unwrap(), flag(&second), "{name}");
    }
    let unknown = ServeSettings::from_toml("x = 1").unwrap_err().to_string();
    names.insert("rate-limits".to_owned());
    for name in names {
        assert!(unknown.contains(&format!("`{name}`")), "{name}: {unknown}");
    }
}

#[test]
fn the_environment_is_between_the_file_and_the_flags() {
    let from_path = || command().mut_arg("data_dir", |option| option.env("PATH"));
    let path = PathBuf::from(std::env::var_os("PATH").unwrap());
    let below = ServeSettings::from_toml("data-dir = \"file\"\nmax-running-jobs = 3").unwrap();
    let over = |flags| {
        let args = args(from_path(), flags).unwrap();
        below.clone().overridden_by(&args.matches).unwrap().data_dir
    };
    assert_eq!(over(&[]), path);
    assert_eq!(over(&["--data-dir", "flag"]), Path::new("flag"));
}
