package io.github.tollgatelimits;

/** Spans and metrics of calls. */
interface Telemetry {
  /** Measures nothing. */
  Telemetry NONE = (name, domain) -> Operation.NONE;

  /** Begins a call, such as {@code check}. */
  Operation begin(String name, String domain);

  /** One call. It ends once. */
  interface Operation {
    /** Measures nothing. */
    Operation NONE =
        new Operation() {
          @Override
          public void decided(Decision decision) {}

          @Override
          public void settled() {}

          @Override
          public void failed(Throwable error) {}
        };

    /** Ends the call with a decision. */
    void decided(Decision decision);

    /** Ends the call without a decision. */
    void settled();

    /** Ends the call with an error. */
    void failed(Throwable error);
  }

  /** Returns telemetry by the program's global OpenTelemetry, if its API is on the class path. */
  static Telemetry detect() {
    try {
      Class.forName(
          "io.opentelemetry.api.GlobalOpenTelemetry", false, Telemetry.class.getClassLoader());
    } catch (ClassNotFoundException missing) {
      return NONE;
    }
    return OpenTelemetryTelemetry.global();
  }
}
