//! Descriptors that Envoy builds from a request with the route configuration from Envoy Gateway.
//!
//! What it deliberately does not do: support every action. It panics at actions that the guide's
//! policy does not use.

use serde_json::Value;

/// A request: its headers and its source address, which is in each network of the policy.
pub(crate) struct Incoming<'r> {
    pub(crate) headers: &'r [(&'r str, &'r str)],
    pub(crate) address: &'r str,
}

/// A check of Envoy: domain, and entries of each descriptor.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) domain: String,
    pub(crate) descriptors: Vec<Vec<(String, String)>>,
}

impl Incoming<'_> {
    /// The check of the first route with limits, from Envoy's `/config_dump`.
    pub(crate) fn question(&self, config: &Value) -> Question {
        let routes = config["configs"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|dump| dump["dynamic_route_configs"].as_array())
            .flatten()
            .flat_map(|dump| dump["route_config"]["virtual_hosts"].as_array().unwrap())
            .flat_map(|host| host["routes"].as_array().unwrap());
        let mut limits = routes.filter_map(|route| {
            let filters = route.get("typed_per_filter_config")?;
            filters.get("envoy.filters.http.ratelimit")
        });
        let limits = limits
            .next()
            .unwrap_or_else(|| panic!("no route with limits in {config:#}"));
        let descriptors = limits["rate_limits"].as_array().unwrap().iter();
        Question {
            domain: limits["domain"].as_str().unwrap().to_owned(),
            descriptors: descriptors
                .filter_map(|limit| {
                    let actions = limit["actions"].as_array().unwrap().iter();
                    actions.map(|action| self.entry(action)).collect()
                })
                .collect(),
        }
    }

    /// Entry of an action. Without one, Envoy does not send the descriptor.
    fn entry(&self, action: &Value) -> Option<(String, String)> {
        let (kind, action) = action.as_object().unwrap().iter().next().unwrap();
        let text = |field: &str| action[field].as_str().unwrap().to_owned();
        let value = match kind.as_str() {
            "generic_key" => text("descriptor_value"),
            "request_headers" => {
                let name = text("header_name");
                let header = self.headers.iter().find(|(given, _)| *given == name)?;
                header.1.to_owned()
            }
            "remote_address_match" => text("descriptor_value")
                .replace("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", self.address),
            _ => panic!("{kind}: {action}"),
        };
        Some((text("descriptor_key"), value))
    }
}
