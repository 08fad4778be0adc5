//! A headless Chromium, driven by WebDriver through chromedriver.
//!
//! Why thirtyfour: it is maintained, speaks WebDriver and Chromium's DevTools commands, and without
//! its own HTTP client it adds nine small crates.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use thirtyfour::error::{WebDriverError, WebDriverErrorInner, WebDriverResult};
use thirtyfour::session::http::{Body, HttpClient};
use thirtyfour::{
    ChromiumLikeCapabilities as _, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver,
};
use tokio::runtime::Runtime;
use tollgate_test_support::child_process::KillOnDrop;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::program;
use tollgate_test_support::polling::{PATIENCE, until};

/// A browser with one window and a profile of its own.
pub(crate) struct Browser {
    driver: Option<WebDriver>,
    runtime: Runtime,
    _server: KillOnDrop,
}

impl Browser {
    /// Starts it with further arguments of Chromium.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut server = Command::new(program("chromedriver"))
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn_tied()
            .expect("chromedriver starts");
        let stdout = server.stdout.take().expect("its stdout");
        let server = KillOnDrop(server);
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let url = format!("http://127.0.0.1:{}", port.expect("its port"));
        std::thread::spawn(move || lines.for_each(drop));
        let runtime = Runtime::new().expect("a runtime");
        let driver = runtime.block_on(async {
            let mut wanted = DesiredCapabilities::chrome();
            // Chromium's sandbox does not start as root, which CI is.
            let own = [
                "--headless=new",
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-gpu",
            ];
            for argument in own.iter().chain(arguments) {
                wanted.add_arg(argument).expect("an argument");
            }
            for log in ["browser", "performance"] {
                let level = LoggingPrefsLogLevel::All;
                wanted.set_logging_prefs(log, level).expect("a log");
            }
            let client = Client::builder(TokioExecutor::new()).build_http();
            let builder = WebDriver::builder(url, wanted).client(DriverClient(client));
            let driver = builder.connect().await.expect("a session of Chromium");
            let longest = driver.set_script_timeout(PATIENCE * 4).await;
            longest.expect("a timeout");
            driver
        });
        Self {
            driver: Some(driver),
            runtime,
            _server: server,
        }
    }

    fn driver(&self) -> &WebDriver {
        self.driver.as_ref().expect("a session")
    }

    /// Opens a page and waits until it is loaded.
    pub(crate) fn open(&self, url: &str) {
        let opened = self.runtime.block_on(self.driver().goto(url));
        opened.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// The value of a script's `return`. The script may `await`.
    pub(crate) fn run(&self, script: &str) -> Value {
        // A function that may await; the driver awaits its promise.
        let function = format!("return (async () => {{ {script} }})()");
        let ran = self
            .runtime
            .block_on(self.driver().execute(function, vec![]));
        ran.unwrap_or_else(|error| panic!("{script}: {error}"))
            .json()
            .clone()
    }

    /// The text of an element, as it is in the document; empty if there is no such element.
    pub(crate) fn text(&self, selector: &str) -> String {
        let selector = json!(selector);
        let text = self.run(&format!(
            "return document.querySelector({selector})?.textContent ?? ''"
        ));
        text.as_str().expect("text").to_owned()
    }

    /// Waits until an element has text that contains this, and returns it.
    pub(crate) fn wait_for_text(&self, selector: &str, part: &str) -> String {
        until(&format!("{selector} has {part:?}"), || {
            let text = self.text(selector);
            if text.contains(part) {
                Ok(text)
            } else {
                Err(text)
            }
        })
    }

    /// Waits until a script returns this value.
    pub(crate) fn wait_for_value(&self, script: &str, expected: impl Into<Value>) {
        let expected = expected.into();
        until(&format!("{script} is {expected}"), || {
            match self.run(script) {
                value if value == expected => Ok(()),
                value => Err(value),
            }
        });
    }

    /// Calls a DevTools command.
    pub(crate) fn command(&self, method: &str, parameters: Value) -> Value {
        let devtools = self.driver().cdp();
        let called = self.runtime.block_on(devtools.send_raw(method, parameters));
        called.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Emulates a window of this size and a colour scheme.
    pub(crate) fn emulate(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.command("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", scheme);
    }

    /// Messages of the console since the last call: errors, violations of a policy.
    pub(crate) fn messages(&self) -> Vec<String> {
        let log = self.runtime.block_on(self.driver().get_log("browser"));
        log.expect("the console")
            .into_iter()
            .map(|entry| entry.message)
            .collect()
    }

    /// URLs that were requested since the last call, by the network log.
    pub(crate) fn requests(&self) -> Vec<String> {
        let log = self.runtime.block_on(self.driver().get_log("performance"));
        let events = log.expect("the network log").into_iter();
        let events =
            events.map(|entry| serde_json::from_str::<Value>(&entry.message).expect("an event"));
        let sent = events.filter(|event| event["message"]["method"] == "Network.requestWillBeSent");
        let urls = sent.map(|event| event["message"]["params"]["request"]["url"].clone());
        urls.map(|url| url.as_str().expect("a URL").to_owned())
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            // It may have ended already.
            let _ = self.runtime.block_on(driver.quit());
        }
    }
}

/// Requests to chromedriver.
struct DriverClient(Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>);

#[async_trait::async_trait]
impl HttpClient for DriverClient {
    async fn send(&self, request: Request<Body<'_>>) -> WebDriverResult<Response<Bytes>> {
        let (mut head, body) = request.into_parts();
        let body = match body {
            Body::Empty => Bytes::new(),
            Body::Json(json) => Bytes::from(json.to_string()),
        };
        head.headers.remove(http::header::CONTENT_LENGTH);
        let sent = self
            .0
            .request(Request::from_parts(head, Full::new(body)))
            .await;
        let (head, body) = sent.map_err(failed)?.into_parts();
        let body = body.collect().await.map_err(failed)?.to_bytes();
        Ok(Response::from_parts(head, body))
    }

    async fn new(&self) -> Arc<dyn HttpClient> {
        Arc::new(Self(Client::builder(TokioExecutor::new()).build_http()))
    }
}

fn failed(error: impl std::error::Error) -> WebDriverError {
    WebDriverError::from_inner(WebDriverErrorInner::RequestFailed(error.to_string()))
}
