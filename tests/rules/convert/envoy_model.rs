//! Envoy: the descriptors that the actions of `convert --envoy` build for a request.

use std::collections::BTreeMap;

use serde_json::Value;

use super::settings_text::yaml;

/// A request as Envoy sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpRequest {
    /// Headers by lower-case name, `:path` and `:method` among them.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) address: String,
}

/// The lists of actions of one domain.
pub(crate) struct Actions(Vec<Value>);

impl Actions {
    pub(crate) fn read(text: &str) -> Self {
        let document = yaml(text);
        let lists = document["rate_limits"].as_array().cloned();
        Self(lists.unwrap_or_default())
    }

    /// One descriptor for each list whose actions all give an entry.
    pub(crate) fn descriptors(&self, request: &HttpRequest) -> Vec<Vec<(String, String)>> {
        let lists = self.0.iter().filter_map(|list| {
            let actions = list["actions"].as_array().expect("actions").iter();
            actions.map(|action| entry(action, request)).collect()
        });
        lists.collect()
    }

    /// The header of each key, without those that only say that it is absent.
    pub(crate) fn headers(&self) -> BTreeMap<String, String> {
        let actions = self
            .0
            .iter()
            .flat_map(|list| list["actions"].as_array().unwrap());
        let headers = actions.filter_map(|action| {
            let action = action.get("request_headers")?;
            let text = |name: &str| action[name].as_str().map(str::to_owned);
            Some((text("descriptor_key")?, text("header_name")?))
        });
        headers.collect()
    }
}

fn entry(action: &Value, request: &HttpRequest) -> Option<(String, String)> {
    let (name, fields) = action
        .as_object()
        .expect("a mapping")
        .iter()
        .next()
        .expect("one action");
    let text = |name: &str| fields[name].as_str().map(str::to_owned);
    match name.as_str() {
        "remote_address" => Some((name.clone(), request.address.clone())),
        "generic_key" => Some((name.clone(), text("descriptor_value")?)),
        "request_headers" => {
            let value = request.headers.get(&text("header_name")?)?;
            Some((text("descriptor_key")?, value.clone()))
        }
        "header_value_match" => {
            assert_eq!(text("expect_match").as_deref(), Some("false"));
            let header = fields["headers"][0]["name"].as_str().expect("a header");
            let is_absent = !request.headers.contains_key(header);
            is_absent.then(|| {
                (
                    text("descriptor_key").unwrap(),
                    text("descriptor_value").unwrap(),
                )
            })
        }
        "extension" => {
            assert_eq!(fields["typed_config"]["text"], "request.url_path");
            let path = request.headers[":path"].split('?').next().unwrap();
            Some(("url_path".to_owned(), path.to_owned()))
        }
        other => panic!("{other} is no action of this model"),
    }
}
