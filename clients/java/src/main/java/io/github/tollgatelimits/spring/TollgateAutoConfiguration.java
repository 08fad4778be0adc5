package io.github.tollgatelimits.spring;

import io.github.tollgatelimits.TlsOptions;
import io.github.tollgatelimits.TollgateClient;
import io.github.tollgatelimits.middleware.LimitOptions;
import io.github.tollgatelimits.middleware.RequestEntry;
import io.github.tollgatelimits.servlet.TollgateFilter;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.context.properties.bind.BindHandler;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.boot.context.properties.bind.handler.NoUnboundElementsBindHandler;
import org.springframework.boot.context.properties.source.ConfigurationPropertySource;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.core.env.PropertySource;
import org.springframework.core.env.StandardEnvironment;

/**
 * Configures a {@link TollgateClient} and a {@link TollgateFilter} if {@code tollgate.domain} is
 * set.
 *
 * <p>Beans of the program of the types {@link TollgateClient} and {@link LimitOptions} replace
 * those of the properties.
 */
@AutoConfiguration
@ConditionalOnProperty("tollgate.domain")
@EnableConfigurationProperties(TollgateProperties.class)
public class TollgateAutoConfiguration {
  /**
   * Creates the configuration. Refuses system properties with unknown names, which Spring ignores.
   * Variables of the environment stay ignored: Kubernetes sets {@code TOLLGATE_PORT} and others for
   * a service of that name.
   */
  public TollgateAutoConfiguration(Environment environment) {
    Binder.get(environment)
        .bind(
            "tollgate",
            Bindable.of(TollgateProperties.class),
            new NoUnboundElementsBindHandler(
                BindHandler.DEFAULT, TollgateAutoConfiguration::isSystemProperties));
  }

  private static boolean isSystemProperties(ConfigurationPropertySource source) {
    return source.getUnderlyingSource() instanceof PropertySource<?> properties
        && properties.getName().equals(StandardEnvironment.SYSTEM_PROPERTIES_PROPERTY_SOURCE_NAME);
  }

  /** Returns the client. Spring closes it. */
  @Bean(destroyMethod = "close")
  @ConditionalOnMissingBean
  public TollgateClient tollgateClient(TollgateProperties properties) {
    TollgateClient.Builder builder =
        TollgateClient.builder()
            .domain(properties.domain())
            .addresses(properties.addresses())
            .protocol(properties.protocol())
            .deadline(properties.deadline())
            .onError(properties.onError())
            .unknownDomain(properties.unknownDomain())
            .denialCacheEntries(properties.denialCacheEntries())
            .batching(properties.batching())
            .breaker(properties.breaker().failures(), properties.breaker().open())
            .local(properties.local().perSecond(), properties.local().burst());
    if (properties.leases() != null) {
      builder.leases(properties.leases());
    }
    TollgateProperties.Tls tls = properties.tls();
    if (tls != null) {
      builder.tls(
          new TlsOptions(
              Optional.ofNullable(tls.caBundle()),
              Optional.ofNullable(tls.certificate()),
              Optional.ofNullable(tls.privateKey()),
              Optional.ofNullable(tls.serverName())));
    }
    return builder.build();
  }

  /** Configuration of servlet applications. */
  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(Filter.class)
  @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
  public static class ServletConfiguration {
    /** Creates the configuration. */
    public ServletConfiguration() {}

    /** Returns the options of {@code tollgate.filter}. */
    @Bean
    @ConditionalOnMissingBean(LimitOptions.class)
    public LimitOptions<HttpServletRequest> tollgateLimitOptions(TollgateProperties properties) {
      TollgateProperties.Filter filter = properties.filter();
      LimitOptions.Builder<HttpServletRequest> options =
          LimitOptions.<HttpServletRequest>builder()
              .hits(filter.hits())
              .trustedProxies(filter.trustedProxies())
              .skipPaths(filter.skipPaths())
              .shadow(filter.shadow())
              .count(filter.count())
              .headers(filter.headers())
              .status(filter.status())
              .body(filter.body(), filter.contentType())
              .errorStatus(filter.errorStatus());
      for (List<TollgateProperties.Entry> entries : filter.descriptors()) {
        options.descriptor(entries.stream().map(ServletConfiguration::entry).toList());
      }
      return options.build();
    }

    /** Returns the registration of the filter, for all paths. */
    @Bean
    @ConditionalOnMissingBean(name = "tollgateFilter")
    public FilterRegistrationBean<TollgateFilter> tollgateFilter(
        TollgateClient client,
        LimitOptions<HttpServletRequest> options,
        TollgateProperties properties) {
      FilterRegistrationBean<TollgateFilter> registration =
          new FilterRegistrationBean<>(new TollgateFilter(client, options));
      registration.setName("tollgateFilter");
      registration.setOrder(properties.filter().order());
      return registration;
    }

    private static RequestEntry<Object> entry(TollgateProperties.Entry entry) {
      List<RequestEntry<Object>> sources = new ArrayList<>();
      if (entry.value() != null) {
        sources.add(RequestEntry.value(entry.key(), entry.value()));
      }
      if (entry.header() != null) {
        sources.add(RequestEntry.header(entry.key(), entry.header()));
      }
      if (entry.method()) {
        sources.add(RequestEntry.method(entry.key()));
      }
      if (entry.path()) {
        sources.add(RequestEntry.path(entry.key()));
      }
      if (entry.pathTemplates() != null) {
        String[] templates = entry.pathTemplates().toArray(String[]::new);
        sources.add(RequestEntry.pathTemplate(entry.key(), templates));
      }
      if (entry.remoteAddress()) {
        sources.add(RequestEntry.remoteAddress(entry.key()));
      }
      if (sources.size() != 1) {
        throw new IllegalArgumentException(
            "the entry "
                + entry.key()
                + " of tollgate.filter.descriptors needs exactly one source, has "
                + sources.size());
      }
      RequestEntry<Object> source = sources.get(0);
      return entry.defaultValue() == null ? source : source.withDefault(entry.defaultValue());
    }
  }
}
