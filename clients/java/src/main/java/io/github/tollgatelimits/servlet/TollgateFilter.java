package io.github.tollgatelimits.servlet;

import io.github.tollgatelimits.CheckRequest;
import io.github.tollgatelimits.Decision;
import io.github.tollgatelimits.TollgateClient;
import io.github.tollgatelimits.middleware.Answer;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.github.tollgatelimits.middleware.RequestView;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * Checks each request of a Jakarta servlet container, and answers those that are refused.
 *
 * <p>The thread of the request waits for the check, at most the deadline of the client. The filter
 * does not close the client.
 */
public final class TollgateFilter extends HttpFilter {
  private static final long serialVersionUID = 1L;

  private final transient TollgateClient client;
  private final transient LimitOptions<HttpServletRequest> options;

  private record ServletView(HttpServletRequest request) implements RequestView {
    @Override
    public String method() {
      return request.getMethod();
    }

    @Override
    public String path() {
      return request.getRequestURI();
    }

    @Override
    public List<String> headers(String name) {
      return Collections.list(request.getHeaders(name));
    }

    @Override
    public String peerAddress() {
      String address = request.getRemoteAddr();
      return address == null ? "" : address.replace("[", "").replace("]", "");
    }
  }

  /** Creates a filter. */
  public TollgateFilter(TollgateClient client, LimitOptions<HttpServletRequest> options) {
    this.client = Objects.requireNonNull(client, "client");
    this.options = Objects.requireNonNull(options, "options");
  }

  @Override
  protected void doFilter(
      HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    Optional<CheckRequest> check = options.checkOf(new ServletView(request), request);
    if (check.isEmpty()) {
      chain.doFilter(request, response);
      return;
    }
    Decision decision = client.check(check.get());
    options.notifyDecision(request, decision);
    if (write(response, options.answer(decision))) {
      return;
    }
    if (!check.get().dryRun()) {
      chain.doFilter(request, response);
      return;
    }
    boolean failed = true;
    try {
      chain.doFilter(request, response);
      failed = response.getStatus() >= 400;
    } finally {
      if (request.isAsyncStarted()) {
        request.getAsyncContext().addListener(new AsyncEnd(check.get(), decision));
      } else {
        options.ended(client, check.get(), decision, failed);
      }
    }
  }

  /** Counts a request that ends on another thread. */
  private final class AsyncEnd implements AsyncListener {
    private final CheckRequest check;
    private final Decision decision;
    private boolean failed;

    AsyncEnd(CheckRequest check, Decision decision) {
      this.check = check;
      this.decision = decision;
    }

    @Override
    public void onComplete(AsyncEvent event) {
      int status = ((HttpServletResponse) event.getAsyncContext().getResponse()).getStatus();
      options.ended(client, check, decision, failed || status >= 400);
    }

    @Override
    public void onTimeout(AsyncEvent event) {
      failed = true;
    }

    @Override
    public void onError(AsyncEvent event) {
      failed = true;
    }

    @Override
    public void onStartAsync(AsyncEvent event) {
      event.getAsyncContext().addListener(this);
    }
  }

  /**
   * Writes the answer to a request that a decision refuses, as the filter does: status, {@code
   * Retry-After}, rate limit headers and body. It is for handlers that call {@link
   * TollgateClient#check} themselves. It writes nothing for an allowed decision.
   *
   * @return whether the request is refused
   */
  public static boolean writeRefusal(
      HttpServletResponse response, Decision decision, LimitOptions<?> options) throws IOException {
    Answer answer = options.answer(decision);
    return !answer.passes() && write(response, answer);
  }

  /**
   * Adds the headers, and writes the answer to a refused request. Returns whether it is refused.
   */
  private static boolean write(HttpServletResponse response, Answer answer) throws IOException {
    answer.httpHeaders().forEach(response::setHeader);
    if (answer.passes()) {
      return false;
    }
    byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
    response.setStatus(answer.status());
    response.setContentType(answer.contentType());
    response.setContentLength(body.length);
    response.getOutputStream().write(body);
    return true;
  }
}
